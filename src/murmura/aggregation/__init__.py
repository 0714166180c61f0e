"""What the server does with the states that sites send back: means, server optimisers, control variates."""
