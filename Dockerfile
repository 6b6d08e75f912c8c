# The image of Muster for those who have Docker: docker build --tag muster:0.1.0 .
# It has the program, user and entry point of the archive that `cargo xtask image` makes without Docker.
FROM rust:1-alpine AS build
# The C parts of dependencies need a compiler; Alpine's C library is linked statically.
RUN apk add --no-cache gcc musl-dev make
WORKDIR /muster
COPY . .
RUN cargo build --locked --profile image --package app && cp target/image/muster /muster-program

FROM scratch
COPY --from=build /muster-program /muster
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/muster"]
