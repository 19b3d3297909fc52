# The web server, the workers, the clockwork, the keeper and the first preparation: one image. docs/containers.md says how to use it.
FROM python:3.11-slim-bookworm AS packages

# Where packages come from: a mirror of PyPI, and the index that torch is taken from. The one named here has builds
# without CUDA; for a GPU use https://download.pytorch.org/whl/cu130. Empty: whatever pip finds on PyPI.
ARG PIP_INDEX_URL=
ARG PIP_FIND_LINKS=
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY requirements/app.lock requirements/app.hashes requirements/nodeps.lock /tmp/requirements/
# torch first and alone, as in the Makefile: it is the largest layer and the one that changes least.
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep '^torch==' /tmp/requirements/app.lock)"
RUN pip install --require-hashes --no-deps -r /tmp/requirements/app.hashes && pip install --no-deps -r /tmp/requirements/nodeps.lock


FROM python:3.11-slim-bookworm

# Nothing is written outside /data and /tmp. HOME is a scratch folder; downloaded models belong to the data.
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp \
    TILTYARD_DATA_DIR=/data HF_HOME=/data/huggingface \
    TILTYARD_STATIC_ROOT=/opt/static TILTYARD_STATIC_FINDERS=false
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin tiltyard \
    && install -d -m 0700 -o tiltyard -g tiltyard /data /data/static
COPY --from=packages /opt/venv /opt/venv

WORKDIR /app
COPY . .
RUN export TILTYARD_DATA_DIR=/tmp/build && python manage.py compile_catalogues && python manage.py collectstatic --noinput -v0 \
    && chmod -R a+rX /opt/static && python -m compileall -q . && rm -rf /tmp/build

USER 10001
EXPOSE 8000
STOPSIGNAL SIGTERM
# The web server's; docker-compose.yml gives the other processes theirs. Any answer but a server error is health: the
# page may well refuse this caller's host name.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["python", "-c", "\
import http.client, sys; peer = http.client.HTTPConnection('127.0.0.1', 8000, timeout=4); \
peer.request('GET', '/login/'); sys.exit(peer.getresponse().status >= 500)"]
ENTRYPOINT ["python", "manage.py"]
CMD ["program", "web"]
