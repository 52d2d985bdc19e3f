"""Count correct answers, choose values on validation data, and store both."""
