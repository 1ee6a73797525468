package store_test

import (
	"os"
	"testing"

	"geodlq/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
