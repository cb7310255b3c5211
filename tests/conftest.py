"""One thread per test process: two workers that oversubscribe the cores slow each other down 50x."""

import torch

torch.set_num_threads(1)
