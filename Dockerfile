# Two images, for any platform that Go builds for:
#   docker build -t margay .                              one static binary and nothing else
#   docker build -t margay:iptables --target iptables .   with iptables and nftables, for the iptables dataplane
ARG GO_VERSION=1.26

FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
# With .git: the binary knows its version from it. Without the symbols, which no tool here reads, it has 31 MB instead of 44.
COPY . .
ARG TARGETOS TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=true -ldflags "-s -w $(scripts/stamp)" -o /margay ./cmd/margay

FROM debian:13-slim AS iptables
RUN apt-get update && apt-get install --yes --no-install-recommends iptables nftables && rm -rf /var/lib/apt/lists/*
LABEL org.opencontainers.image.title="margay" \
      org.opencontainers.image.description="Enforces Kubernetes network policy on a node, with eBPF or iptables" \
      org.opencontainers.image.source="https://github.com/margay-project/margay" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /margay /usr/local/bin/margay
ENTRYPOINT ["/usr/local/bin/margay"]
CMD ["run"]

FROM scratch AS bpf
LABEL org.opencontainers.image.title="margay" \
      org.opencontainers.image.description="Enforces Kubernetes network policy on a node, with eBPF" \
      org.opencontainers.image.source="https://github.com/margay-project/margay" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /margay /usr/local/bin/margay
ENTRYPOINT ["/usr/local/bin/margay"]
CMD ["run"]
