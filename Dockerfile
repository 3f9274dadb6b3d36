# One image for the API, the workers and the migrations: the arguments say which.
# For a build that can be repeated, pin the base: --build-arg PYTHON=python:3.11-slim-bookworm@sha256:…
ARG PYTHON=python:3.11-slim-bookworm
FROM ${PYTHON} AS build
WORKDIR /build
COPY .ci/uv.lock requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r uv.lock \
 && uv venv /opt/build \
 && uv pip sync --no-cache --require-hashes --python /opt/build/bin/python requirements.lock
COPY . .
RUN /opt/build/bin/python -m hatchling build -t wheel -d /wheels \
 && uv venv /opt/anabranch \
 && uv pip install --no-cache --compile-bytecode --python /opt/anabranch/bin/python --constraint requirements.lock /wheels/*.whl

FROM ${PYTHON}
RUN useradd --uid 10001 --create-home anabranch && install -d -o anabranch /data
COPY --from=build /opt/anabranch /opt/anabranch
ENV PATH=/opt/anabranch/bin:$PATH ANABRANCH_DATA_DIR=/data PYTHONUNBUFFERED=1
USER anabranch
VOLUME /data
EXPOSE 8420
ENTRYPOINT ["anabranch"]
CMD ["api", "--host", "0.0.0.0"]
