"""What a run would do and take, worked out before it is done (``murmura run --dry-run``)."""
