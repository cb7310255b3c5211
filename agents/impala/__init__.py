"""IMPALA with exploration bonuses: actors fill unrolls, one learner scores, corrects and learns from them."""
