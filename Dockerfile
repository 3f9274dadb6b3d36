# One image for the API, the workers and the migrations: the arguments say which.
# For a build that can be repeated, pin the base: --build-arg PYTHON=python:3.11.14-slim-bookworm@sha256:…
# 3.11.14 is the first release without the faults that `anabranch doctor` knows.
ARG PYTHON=python:3.11.14-slim-bookworm
FROM ${PYTHON} AS build
# Builds what .ci/platforms.py lists without a wheel: on x86_64 nothing.
RUN test "$(uname -m)" = x86_64 || { apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev; }
WORKDIR /build
COPY .ci/build.lock requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r build.lock \
 && uv venv /opt/anabranch \
 && uv pip sync --no-cache --require-hashes --compile-bytecode --python /opt/anabranch/bin/python requirements.lock
COPY . .
RUN ANABRANCH_UI_BUILD=require python hatch_build.py \
 && python -m hatchling build -t wheel -d /wheels \
 && uv pip install --no-cache --offline --no-deps --compile-bytecode --python /opt/anabranch/bin/python /wheels/*.whl

FROM ${PYTHON}
RUN useradd --uid 10001 --create-home anabranch && install -d -o anabranch /data
COPY --from=build /opt/anabranch /opt/anabranch
ENV PATH=/opt/anabranch/bin:$PATH ANABRANCH_DATA_DIR=/data PYTHONUNBUFFERED=1
USER anabranch
VOLUME /data
EXPOSE 8420
ENTRYPOINT ["anabranch"]
CMD ["api", "--host", "0.0.0.0"]
