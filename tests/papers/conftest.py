"""What several tests of recipes share."""

from tests.sweeps.conftest import small_recipe  # noqa: F401 - a fixture
