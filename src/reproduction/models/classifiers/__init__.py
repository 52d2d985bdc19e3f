"""What classifiers of transformers share, whatever their inputs: settings, class names, heads, the checks of weights.

`text_classifier` and `image_classifier` are built on it.  A family for another input (audio) needs its own network
class, derived from `networks.Classifier`, its own examples, and what its folders have besides weights.
"""
