"""Text classifiers: any encoder or decoder that transformers loads for sequences."""

from reproduction.models.text_classifier.classifier_family import TextClassifier

FAMILY = TextClassifier()
