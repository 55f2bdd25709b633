# Private text in a container that needs no network and no root:
#   docker build -t textpriv .
#   echo "The patient was admitted." | docker run -i --network none textpriv privatize - - --epsilon 3.4
FROM python:3.12-slim AS build
COPY . /source
RUN python -m pip wheel --no-deps --wheel-dir /wheels /source

FROM python:3.12-slim
# The built-in index and the compiled functions are kept here, so that no run waits for them.
ENV TEXTPRIV_CACHE_DIR=/opt/textpriv/cache NUMBA_CACHE_DIR=/opt/textpriv/compiled HOME=/tmp
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir --only-binary :all: /wheels/textpriv-*.whl && rm -r /wheels
RUN textpriv demo >/dev/null && chown -R 10001:10001 /opt/textpriv
USER 10001:10001
WORKDIR /work
ENTRYPOINT ["textpriv"]
CMD ["--help"]
