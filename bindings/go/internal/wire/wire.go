// Package wire carries messages over the Unix sockets of Rejoin's daemons: a length, and that many bytes of JSON.
package wire

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
)

// Version is that of the protocols.
const Version = 1

// ErrNotBelieved says that somebody listens who may not see what is said. Nothing was said to them.
var ErrNotBelieved = errors.New("not believed")

// ErrTooLarge says that a message is longer than its bound.
var ErrTooLarge = errors.New("message too large")

// Dial connects to the socket at path, and asks the kernel who listens there: this user, root, or one of the others
// that the operator names. No other user may write to the socket's folder.
func Dial(ctx context.Context, path string, others ...int) (*net.UnixConn, error) {
	connected, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	conn := connected.(*net.UnixConn)
	if err := believe(conn, path, others); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func believe(conn *net.UnixConn, path string, others []int) error {
	peer, err := peerUser(conn)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotBelieved, err)
	}
	if !trusted(peer, others) {
		return fmt.Errorf("%w: user %d listens at %s, and not this user or root: name that user, or start it as one of these",
			ErrNotBelieved, peer, path)
	}
	return checkFolder(filepath.Dir(path), peer)
}

func trusted(peer int, others []int) bool {
	// Users of other namespaces all look like this one.
	if peer == overflowUser() {
		return false
	}
	if peer == 0 || peer == os.Geteuid() {
		return true
	}
	for _, other := range others {
		if peer == other {
			return true
		}
	}
	return false
}

func overflowUser() int {
	number := 65534
	if said, err := os.ReadFile("/proc/sys/kernel/overflowuid"); err == nil {
		fmt.Sscan(string(said), &number)
	}
	return number
}

func checkFolder(folder string, peer int) error {
	found, err := os.Stat(folder)
	if err != nil {
		return err
	}
	owner := ownerOf(found)
	others := found.Mode().Perm()&0o022 != 0 && found.Mode()&os.ModeSticky == 0
	if others || (owner != 0 && owner != os.Geteuid() && owner != peer) {
		return fmt.Errorf("%w: other users may write to the folder %s: take their right away", ErrNotBelieved, folder)
	}
	return nil
}

// Append appends a message to buffer, in the form that goes over the socket.
func Append(buffer []byte, message any, most int) ([]byte, error) {
	said, err := json.Marshal(message)
	if err != nil {
		return buffer, err
	}
	if len(said) > most {
		return buffer, fmt.Errorf("%w: %d bytes, and %d are allowed", ErrTooLarge, len(said), most)
	}
	buffer = binary.BigEndian.AppendUint32(buffer, uint32(len(said)))
	return append(buffer, said...), nil
}

// Read reads a message of at most so many bytes into a value. An end before the first byte is io.EOF.
func Read(from io.Reader, into any, most int) error {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return err
	}
	count := binary.BigEndian.Uint32(length[:])
	if int64(count) > int64(most) {
		return fmt.Errorf("%w: %d bytes, and %d are allowed", ErrTooLarge, count, most)
	}
	said := make([]byte, count)
	if _, err := io.ReadFull(from, said); err != nil {
		return noEOF(err)
	}
	return json.Unmarshal(said, into)
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// OnlyRoots fails if anybody but root can write to a file.
func OnlyRoots(file *os.File) error {
	found, err := file.Stat()
	if err != nil {
		return err
	}
	if ownerOf(found) != 0 || found.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%w: %s: only root may own it and write to it", ErrNotBelieved, file.Name())
	}
	return nil
}
