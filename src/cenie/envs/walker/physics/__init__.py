"""Box2D's physics of a walker: five bodies on four joints, and the ground below them."""
