# The front door. `make run` and `make test` set a bare Debian machine up by themselves.
WERROR ?= OFF
JOBS ?= $(shell nproc)
# Some tests mostly wait (for timeouts, for other processes): others use the cores meanwhile.
TESTS_AT_ONCE ?= $(shell expr $(JOBS) + 2)

PREFIX ?= /usr/local

.PHONY: install deb wheel wheel-test run build test test-slow peer-test fuzz bench format clean setup help

help:
	@echo 'make run        install what is missing, build, and run the main job on a shipped model'
	@echo '                (MODEL=smollm2: on a real one, downloaded; or any name or file)'
	@echo 'make build      build the program at build/lockstep'
	@echo 'make install    put program, models, headers and Python package under PREFIX=/usr/local'
	@echo 'make wheel      a wheel for pip with all of these, in dist/; make deb: a package for Debian'
	@echo 'make test       every test that needs no other engine, with sanitizers and fuzzers'
	@echo 'make test-slow  what takes longer: shipped models with every bug, more points of failure, more'
	@echo '                random rounds, longer fuzzing, whole commands under ThreadSanitizer, reports in a browser'
	@echo '                (Chromium), suites on Ray and Slurm, the wheel'
	@echo 'make peer-test  compare with llama.cpp and transformers (downloads them)'
	@echo 'make fuzz       every reader of outside data for SECONDS=60 each, two at a time; what they'
	@echo '                learn stays in CORPUS=build-asan/corpus'
	@echo 'make bench      measure speed'
	@echo 'make format     clang-format on all our code'
	@echo 'make clean      remove what was built'

setup:
	@scripts/setup

build: setup
	cmake --preset release -DLOCKSTEP_WERROR=$(WERROR)
	cmake --build --preset release -j $(JOBS) --target lockstep

run: build
	scripts/first_run

# What was built must not belong to root: `make build` first, then `sudo make install`.
install:
	@test -x build/lockstep || { echo 'make install: run make build first'; exit 1; }
	cmake --install build --prefix '$(PREFIX)' --strip

wheel: setup
	scripts/wheel

# In empty environments, outside this folder.
wheel-test: setup
	LOCKSTEP_CUDA=OFF python3 tests/wheel_test.py

deb: build
	cpack --config build/CPackConfig.cmake -B dist

# All that tests print, for scripts/check_skips.
REPORT = --test-output-size-passed 10000000 --output-junit $(CURDIR)

test: build
	cmake --build --preset release -j $(JOBS)
	scripts/check_format
	ctest --preset release -j $(TESTS_AT_ONCE) $(REPORT)/build/ctest.xml
	cmake --preset asan -DLOCKSTEP_WERROR=$(WERROR)
	cmake --build --preset asan -j $(JOBS)
	ctest --preset asan -j $(TESTS_AT_ONCE) $(REPORT)/build-asan/ctest.xml
	cmake --preset tsan -DLOCKSTEP_WERROR=$(WERROR)
	cmake --build --preset tsan -j $(JOBS)
	ctest --preset tsan -j $(TESTS_AT_ONCE) $(REPORT)/build-tsan/ctest.xml
	scripts/check_skips build/ctest.xml build-asan/ctest.xml build-tsan/ctest.xml

test-slow: build
	@scripts/setup chromium
	@scripts/setup slurm-wlm || echo 'make test-slow: without Slurm'
	cmake --build --preset release -j $(JOBS) --target all slow_programs peer_programs
	ctest --preset slow -j $(TESTS_AT_ONCE)
	cmake --preset asan -DLOCKSTEP_WERROR=$(WERROR)
	cmake --build --preset asan -j $(JOBS) --target fuzzers executors_test cli_test
	ctest --preset asan-slow -j $(TESTS_AT_ONCE)
	cmake --preset tsan -DLOCKSTEP_WERROR=$(WERROR)
	cmake --build --preset tsan -j $(JOBS) --target lockstep
	ctest --preset tsan-slow -j $(TESTS_AT_ONCE)

peer-test: build
	cmake --build --preset release -j $(JOBS) --target all peer_programs
	tests/peer/run

SECONDS ?= 60
CORPUS ?= build-asan/corpus

fuzz: setup
	cmake --preset asan -DLOCKSTEP_WERROR=$(WERROR)
	cmake --build --preset asan -j $(JOBS) --target fuzzers
	scripts/fuzz build-asan $(CORPUS) $(SECONDS) 2

bench: build
	bench/run

format:
	git ls-files -co --exclude-standard '*.cpp' '*.h' '*.cu' '*.cuh' | xargs -r clang-format -i

clean:
	rm -rf build build-* dist
