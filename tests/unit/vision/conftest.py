"""The same random images for each test, whatever ran before."""

import numpy as np
import pytest

from image_files import RNG


@pytest.fixture(autouse=True)
def same_images() -> None:
    """Each test draws its images from the same seed."""
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state
