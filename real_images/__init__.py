"""The catalogue of real images: eight tasks read from ordinary packages, which `make real-images` installs."""

from real_images.image_catalogue import CATALOGUE

__all__ = ["CATALOGUE"]
