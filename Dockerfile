# docker build -t e3b-gym . && docker run --rm -it -v "$PWD/runs:/e3b_gym/runs" e3b-gym
# Runs `make demo`; any other target after the name: docker run --rm -it e3b-gym make watch ENV=Rooms-K6-v0
FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends bison build-essential cmake flex git libbz2-dev libgl1 libglib2.0-0 make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /e3b_gym
# First what the environment depends on, so that a change of the code does not install it again.
COPY setup.cfg pyproject.toml constraints.txt README.md LICENSE Makefile ./
COPY e3b_gym ./e3b_gym
RUN pip config set global.extra-index-url https://download.pytorch.org/whl/cpu && make install
COPY . .
CMD ["make", "demo"]
