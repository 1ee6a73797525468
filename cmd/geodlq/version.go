package main

import (
	"context"
	"fmt"
	"runtime/debug"
)

// release is the version in the making; see CHANGELOG.md.
const release = "0.1.0"

func runVersion(_ context.Context, p *process) error {
	_, err := fmt.Fprintln(p.stdout, "geodlq", version())
	return err
}

// version is the release with the revision that it was built from.
func version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return release
	}
	for _, setting := range build.Settings {
		if setting.Key == "vcs.revision" && len(setting.Value) >= 12 {
			return release + "+" + setting.Value[:12]
		}
	}
	return release
}
