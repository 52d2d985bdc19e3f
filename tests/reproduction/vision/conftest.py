"""Gives each test the same random images, whichever tests ran before."""

import numpy as np
import pytest

from image_files import RNG


@pytest.fixture(autouse=True)
def same_images() -> None:
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state
