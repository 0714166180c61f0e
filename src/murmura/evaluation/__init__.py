"""How good an answer is: text metrics, benchmarks and judges."""
