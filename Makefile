# geodlq: two commands to know.
#   make demo   serve a sample incident on http://127.0.0.1:8080
#   make test   every test, against real PostGIS
# Both install what is missing on Debian and Ubuntu.

# Go alone builds the binary: generated code and assets are committed.
GO ?= go

.PHONY: demo test chaos build generate check bench clean

demo:
	@.ci/deps runtime
	@$(GO) build -o .geodlq/bin/geodlq ./cmd/geodlq
	@exec .geodlq/bin/geodlq demo

# Most tests wait: for a rescue, a retry, a browser. So more run at once than there
# are cores.
test: node_modules
	@.ci/deps test
	$(GO) test -timeout 20m -parallel 4 -skip '^TestChaos' ./...
	@$(MAKE) --no-print-directory chaos

# Kills workers, web processes and PostgreSQL under load, and counts what was lost or
# done twice; once more without the fence, to see that it would be found. For longer:
# make chaos FOR=1h
chaos:
	@.ci/deps test
	GEODLQ_CHAOS=$(FOR) $(GO) test -count=1 -timeout 0 -run '^TestChaos' -v ./cmd/geodlq

build:
	$(GO) build -o geodlq ./cmd/geodlq

# What is generated: templ's Go, the assets, and the table of areas of use (which
# wants Debian's proj-data and sqlite3, and is run by hand: go generate ./internal/geo).
generate: node_modules
	$(GO) tool templ generate
	npm run build
	npm run check

# The browser tests ask axe, which comes from npm.
node_modules: package.json package-lock.json
	@.ci/deps test
	npm ci --no-audit --no-fund --silent
	@touch node_modules

# What CI wants before it tests: nothing stale, nothing unformatted.
check: generate
	@git diff --exit-code --stat -- '*_templ.go' static/dist || (echo 'stale: run make generate and commit' && exit 1)
	@test -z "$$(git status --porcelain -- views static/dist)" || (git status --short -- views static/dist && exit 1)
	@test -z "$$(gofmt -l cmd internal jobs migrations static views web)" || (gofmt -l cmd internal jobs migrations static views web && exit 1)
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

# Figures of the README, in some twenty minutes.
bench: node_modules
	@.ci/deps test
	$(GO) test ./cmd/geodlq -run '^$$' -bench . -benchtime 1x -timeout 30m

clean:
	rm -rf .geodlq/bin geodlq node_modules
