# The server in a container; other machines can reach it, so it needs keys:
#   docker build -t isosent .
#   docker run --rm -p 8000:8000 -e ISOSENT_API_KEYS=A-SECRET-OF-16-CHARACTERS -v "$PWD/my-model:/models/my-model:ro" isosent /models/my-model
FROM python:3.12-slim AS build
COPY pyproject.toml constraints.txt README.md LICENSE /source/
COPY src /source/src
RUN python -m venv /opt/isosent \
    && /opt/isosent/bin/pip install --no-cache-dir -c /source/constraints.txt "/source[serve,search]"

FROM python:3.12-slim
COPY --from=build /opt/isosent /opt/isosent
RUN useradd --system --uid 10001 --no-create-home isosent
USER 10001
ENV PATH=/opt/isosent/bin:$PATH NUMBA_CACHE_DIR=/tmp/numba HOME=/tmp
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/ready', timeout=4)"]
ENTRYPOINT ["isosent", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["wordllama"]
