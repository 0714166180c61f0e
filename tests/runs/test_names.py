from hypothesis import example, given
from hypothesis import strategies as st

from murmura.runs.names import site_folder, site_of


@given(st.text())
@example("..")
@example("%")
@example("")
def test_any_name_of_a_site_is_a_folders(name):
    folder = site_folder(name)
    assert site_of(folder) == name
    assert "/" not in folder and "\\" not in folder and folder not in (".", "..", "")
