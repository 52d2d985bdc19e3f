"""Image classifiers: any vision model that transformers loads for images."""

from reproduction.models.image_classifier.image_family import ImageClassifier

FAMILY = ImageClassifier()
