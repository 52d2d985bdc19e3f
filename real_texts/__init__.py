"""The catalogue of real texts: eight tasks read from ordinary packages, which `make real` installs."""

from real_texts.real_catalogue import CATALOGUE

__all__ = ["CATALOGUE"]
