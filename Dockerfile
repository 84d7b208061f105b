# The server in a container: the same steps as deploy/quickstart.sh.
#   docker build -t tenon:dev .
#   docker run --rm -p 127.0.0.1:50551:50551 tenon:dev
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
WORKDIR /src
COPY deploy/install_packages.sh deploy/install_packages.sh
RUN deploy/install_packages.sh build
COPY . .
RUN cmake -G Ninja -S . -B /build -DTENON_TESTS=OFF \
 && cmake --build /build --target tenond tenon \
 && install -D -t /out/bin /build/server/tenond /build/client/cpp/tenon

FROM ${BASE}
COPY deploy/install_packages.sh /tmp/install_packages.sh
RUN /tmp/install_packages.sh runtime && rm -rf /tmp/install_packages.sh /var/lib/apt/lists/*
COPY --from=build /out/bin/ /usr/local/bin/
RUN useradd --system --uid 10001 --no-create-home tenon
USER 10001
EXPOSE 50551 50552
# Inside the container only; publish the port where you mean it to be reached.
ENTRYPOINT ["tenond", "--listen=0.0.0.0:50551", "--metrics=0.0.0.0:50552", "--insecure_listen"]
