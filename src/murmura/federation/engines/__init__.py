"""What carries asks to sites and replies back."""
