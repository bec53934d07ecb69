# Two images: `docker build --target judge -t assay-judge .` and `docker build --target train -t assay-train .`
# Neither runs as root, and both run with a read-only root. PIP_EXTRA_INDEX_URL names torch's index of CPU wheels, which are smaller.
FROM python:3.12-slim AS base
ARG PIP_EXTRA_INDEX_URL=
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp XDG_CACHE_HOME=/tmp/cache
WORKDIR /src
COPY pyproject.toml constraints.txt README.md ./
COPY recipes recipes
COPY assay assay
RUN pip install -c constraints.txt ".[maths]" && useradd --uid 10001 --no-create-home assay

FROM base AS judge
# The compilers of more languages than Python: what a run's tasks need.
RUN apt-get update -q && apt-get install -q -y --no-install-recommends gcc g++ && rm -rf /var/lib/apt/lists/*
USER 10001
WORKDIR /tmp
EXPOSE 8080
# The first lines tell the tier of the sandbox, and what is missing for a higher one.
ENTRYPOINT ["sh", "-c", "assay doctor | head -n 8; exec assay serve --host 0.0.0.0 --port 8080 \"$@\"", "assay-judge"]

FROM base AS train
RUN pip install -c constraints.txt ".[train,gguf,tb]"
USER 10001
# A volume: settings, tasks, runs and downloaded models.
ENV HF_HOME=/work/.cache
WORKDIR /work
ENTRYPOINT ["assay"]
CMD ["train", "--help"]
