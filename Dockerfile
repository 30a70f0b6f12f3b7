# Name server and broker in a container; compose.yaml shows how to run it, docs/deploy.md what to mind.
# Two stages: the wheel needs Rust's compiler, the image doesn't.
ARG PYTHON=3.13-slim-bookworm
ARG RUST=1.88-slim-bookworm

FROM rust:${RUST} AS rust

FROM python:${PYTHON} AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY --from=rust /usr/local/rustup /usr/local/rustup
COPY --from=rust /usr/local/cargo /usr/local/cargo
ENV RUSTUP_HOME=/usr/local/rustup CARGO_HOME=/usr/local/cargo PATH=/usr/local/cargo/bin:$PATH
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY native native
COPY rockmq rockmq
COPY pyspark_rockmq pyspark_rockmq
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .
RUN python -m venv /opt/rockmq \
    && /opt/rockmq/bin/python -m pip install --no-cache-dir "$(ls /wheels/rockmq-*.whl)[speed,auth,otlp]"

FROM python:${PYTHON}
RUN useradd --system --user-group --uid 10001 --no-create-home --home-dir /var/lib/rockmq rockmq \
    && install --directory --owner=rockmq --group=rockmq /var/lib/rockmq
COPY --from=build /opt/rockmq /opt/rockmq
ENV PATH=/opt/rockmq/bin:$PATH HOME=/var/lib/rockmq PYTHONUNBUFFERED=1 ROCKMQ_LOG_FORMAT=json
# As a number, so that Kubernetes can see that it isn't root.
USER 10001
WORKDIR /var/lib/rockmq
VOLUME /var/lib/rockmq
# Name server; the broker's fast port and port.
EXPOSE 9876 10909 10911
STOPSIGNAL SIGTERM
# A broker's; a name server alone has its at 5558.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:5557/healthz', timeout=4)"]
ENTRYPOINT ["rockmq"]
CMD ["serve", "--host", "0.0.0.0", "--data", "/var/lib/rockmq/store"]
