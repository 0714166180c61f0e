"""A comparison to start from (``murmura init compare``)."""

STARTER = """\
# Which method, on your records? Each of these is run with several seeds, and one is chosen under your limits.
#
#   murmura compare my.toml --dry-run --time       what it would run, and about how long that takes
#   murmura compare my.toml                        run it; stopped, it goes on with the same command
#   murmura compare my.toml --jobs 2               the same, two runs side by side: sooner, in twice the memory
#   murmura compare my.toml --max-leakage 0.6      choose under another limit: finished runs are kept
#
# Name your records in [data]; all else can stay.

[compare]
name = "comparison"              # its folder is runs/NAME
seeds = 3                        # of each method; the more, the surer
rates = [2e-3, 1e-2]             # learning rates that are tried for each, with a seed of their own
#limits = { max_epsilon = 8, max_leakage = 0.6, max_bytes = "50MB" }

[[compare.arms]]                 # without options of its own: the experiment below
name = "FedAvg"

[[compare.arms]]                 # the model writes records after a site's few; small, as a laptop can do it
method.name = "fewfedpit"
method.keep = 2                  # written records that a site keeps in a round
method.instruction_attempts = 2
method.example_attempts = 1
method.instruction_tokens = 40
method.example_tokens = 64
grid = { "method.beta" = [0.0, 0.5] }

[[compare.arms]]
method.name = "dplora"
method.epsilon = 8.0

[model]
name = "smollm2-135m"            # or another of `murmura models list`, a folder, a Hugging Face id

[data]
train = "FOLDER"                 # in which each site has a file: JSONL, CSV, Excel or Parquet
#fields = { instruction = "question", output = "answer" }    # if your columns have other names
heldout_records = 28             # taken out of these, to measure on
max_length = 256                 # tokens; records whose answer is longer are left out first: raise it to keep them

[lora]
layers = "last 8"                # about three times as fast as "all" on a CPU

[training]
batch_size = 4

[method]
name = "fedit"
rounds = 2

[evaluation]
sample = 8                       # held-out questions that models answer
attacks = true                   # also where an ε is promised, which does not cover what attacks count
every = 2                        # rounds; and always before the first and after the last
"""
