"""Two tasks of lm-evaluation-harness in YAML files of one's own, with their data beside them."""

from __future__ import annotations

from tests.experiment.small import write_lines

OPTIONS = """\
task: doses
dataset_path: json
dataset_kwargs:
  data_files: {test: doses.jsonl}
output_type: multiple_choice
test_split: test
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_choice: "{{options}}"
doc_to_target: answer
metric_list: [{metric: acc}, {metric: acc_norm}]
"""

ANSWERS = """\
task: visits
dataset_path: json
dataset_kwargs:
  data_files: {test: visits.jsonl}
output_type: generate_until
test_split: test
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], max_gen_toks: 8, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


def write_tasks(folder):
    """Paths of ``doses.yaml``, five questions with options, and ``visits.yaml``, three that are answered in words."""
    doses = [
        {"question": f"which dose {n} for the patient", "options": ["one tablet", "two", "a letter"], "answer": n % 3}
        for n in range(5)
    ]
    write_lines(folder / "doses.jsonl", doses)
    write_lines(folder / "visits.jsonl", [{"question": f"how many visits {n}", "answer": f"{n}"} for n in range(3)])
    (folder / "doses.yaml").write_text(OPTIONS)
    (folder / "visits.yaml").write_text(ANSWERS)
    return [str(folder / name) for name in ("doses.yaml", "visits.yaml")]
