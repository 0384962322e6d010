package sharetest

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Real is a `rejoin share`, of the program that REJOIN names.
type Real struct {
	Socket string
	Folder string
	t      testing.TB
}

// NewReal starts a share that the test's end stops. It skips the test if REJOIN does not say where the program is.
func NewReal(t testing.TB, options ...string) *Real {
	program := os.Getenv("REJOIN")
	if program == "" {
		t.Skip("REJOIN does not name the program `rejoin`")
	}
	folder, err := os.MkdirTemp("", "share")
	if err != nil {
		t.Fatal(err)
	}
	real := &Real{Socket: filepath.Join(folder, "s"), Folder: folder, t: t}
	arguments := append([]string{"share", "web", "--socket", real.Socket, "--folder", folder}, options...)
	command := exec.Command(program, arguments...)
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Signal(syscall.SIGTERM)
		command.Wait()
		if t.Failed() {
			t.Logf("the share said: %s", said.Bytes())
		}
		os.RemoveAll(folder)
	})
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("unix", real.Socket); err == nil {
			conn.Close()
			return real
		}
	}
	t.Fatalf("the share does not listen: %s", said.Bytes())
	return nil
}

// Run runs a command of the program on the share's cache, and returns what it says.
func (r *Real) Run(arguments ...string) string {
	said, err := exec.Command(os.Getenv("REJOIN"), append(arguments, "--folder", r.Folder)...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%v: %v: %s", arguments, err, said)
	}
	return string(said)
}
