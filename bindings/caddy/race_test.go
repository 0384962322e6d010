//go:build race

package caddy_test

// With the race detector, Caddy itself is built with it.
func init() { building = append(building, "-race") }
