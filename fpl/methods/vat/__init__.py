"""Virtual adversarial training: a student that has to ignore the small change of an image that moves a network most."""
