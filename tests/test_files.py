"""Files that are complete or absent."""

import pytest

from scripts.files import whole_file


def test_a_block_that_succeeds_leaves_the_file_alone_in_its_new_folder(tmp_path):
    path = tmp_path / "new" / "table.csv"
    with whole_file(path) as partial:
        assert partial.parent == path.parent and partial.name.endswith(path.name)
        partial.write_text("a")
        assert not path.exists()
    assert path.read_text() == "a"
    assert list(path.parent.iterdir()) == [path]


def test_a_block_that_fails_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")
    with pytest.raises(RuntimeError), whole_file(path) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
