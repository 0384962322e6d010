package wire

import (
	"net"
	"os"
	"syscall"
)

// peerUser asks the kernel which user listens at the other end.
func peerUser(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *syscall.Ucred
	var asked error
	err = raw.Control(func(descriptor uintptr) {
		peer, asked = syscall.GetsockoptUcred(int(descriptor), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err == nil {
		err = asked
	}
	if err != nil {
		return 0, err
	}
	return int(peer.Uid), nil
}

func ownerOf(found os.FileInfo) int {
	return int(found.Sys().(*syscall.Stat_t).Uid)
}
