"""What the families of vision models share: examples, augmentation, and the preparation of batches."""
