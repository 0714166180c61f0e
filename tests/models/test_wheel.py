import shutil
import threading
import time

from murmura.models.wheel import _size


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
