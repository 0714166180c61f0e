"""Where words end, in whatever script a text is."""

from murmura.words import count_words


def test_a_text_without_spaces_has_words_too():
    for text, count in (("今天天气很好", 6), ("วันนี้อากาศดี", 13), ("今日は CT を撮る", 7), ("问？", 1), ("", 0)):
        assert count_words(text) == count
    for text in ("a new text, of words", "новый текст из слов - и ещё", "오늘 날씨가 좋아요", "l’été à la mer"):
        assert count_words(text) == len(text.split())
