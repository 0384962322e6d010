package wire

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

const stranger = 12345

// listenAs listens as another user, on a thread that ends with it.
func listenAs(t *testing.T, path string, user int) {
	listening := make(chan net.Listener)
	go func() {
		runtime.LockOSThread()
		syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(user), uintptr(user), uintptr(user))
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Error(err)
		}
		listening <- listener
	}()
	listener := <-listening
	if listener == nil {
		t.FailNow()
	}
	t.Cleanup(func() { listener.Close() })
}

func TestAnotherUserIsBelievedIfNamed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can listen as another user")
	}
	folder, err := os.MkdirTemp("", "wire")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	if err := os.Chown(folder, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "s")
	listenAs(t, path, stranger)
	if _, err := Dial(context.Background(), path); !errors.Is(err, ErrNotBelieved) || !strings.Contains(err.Error(), "12345") {
		t.Error(err)
	}
	conn, err := Dial(context.Background(), path, stranger)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
