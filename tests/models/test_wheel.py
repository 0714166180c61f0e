import shutil
import threading
import time

from murmura.models.wheel import _scratch, _size


def test_what_killed_processes_have_left_goes_once_nobody_is_at_work(tmp_path):
    (tmp_path / "tiny-weights-1.0").mkdir()
    with _scratch(tmp_path) as one:
        (one / "part").touch()
        with _scratch(tmp_path) as two:
            assert (one / "part").exists() and two.is_dir() and two != one
        (tmp_path / ".unfinished-left" / "parts").mkdir(parents=True)
        with _scratch(tmp_path):
            assert (tmp_path / ".unfinished-left").exists()  # it may be another process's that is at work
    with _scratch(tmp_path) as one:
        assert sorted(tmp_path.iterdir()) == [one, tmp_path / "tiny-weights-1.0"]
    assert [path.name for path in tmp_path.iterdir()] == ["tiny-weights-1.0"]


def test_the_size_of_a_download_is_read_while_its_files_come_and_go(tmp_path):
    (tmp_path / "part").write_bytes(bytes(1000))

    def churn():
        while not done.is_set():
            for number in range(20):
                (tmp_path / f"unpack-{number}" / "deep").mkdir(parents=True)
            for number in range(20):
                shutil.rmtree(tmp_path / f"unpack-{number}")

    done = threading.Event()
    other = threading.Thread(target=churn)
    other.start()
    end = time.monotonic() + 0.5
    try:
        sizes = set()
        while time.monotonic() < end:
            sizes.add(_size(tmp_path))
    finally:
        done.set()
        other.join()
    assert sizes == {1000}
