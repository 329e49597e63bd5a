package iptables

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
)

// transactions observes writes into nftables. The kernel sends a message for each change of a transaction, and at its end one with
// the number of the transaction.
type transactions struct {
	mu        sync.Mutex
	questions *nfnl.Conn
	socket    *os.File            // nil: not yet listening
	writes    map[nftTable]uint32 // transactions that have written into it
	open      map[nftTable]bool   // written by the transaction whose end is yet to come
	lost      uint32              // how often messages were lost
	flags     map[nftTable]tableFlags
}

type nftTable struct {
	family uint8
	name   string
}

// receiveBuffer is the size in bytes of the kernel's buffer for messages that are not read yet. Messages of one transaction of ours
// with thousands of rules can exceed it; the transaction's number shows whether messages of others were lost.
const receiveBuffer = 1 << 20

func (t *transactions) stamp(family Family, table string) (Stamp, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.listen(); err != nil {
		return Stamp{}, err
	}
	generation, err := t.generation() // before the messages are read: those of later transactions only make Writes larger
	if err != nil {
		return Stamp{}, err
	}
	if err := t.drain(); err != nil {
		return Stamp{}, err
	}
	of := key(family, table)
	flags, err := t.flagsOf(of, generation)
	return Stamp{Generation: generation, Writes: t.writes[of], Lost: t.lost, Dormant: flags&tableDormant != 0}, err
}

func (t *transactions) listen() error {
	if t.socket != nil {
		return nil
	}
	questions, err := nfnl.Open()
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return errors.Join(fmt.Errorf("listen to nftables: %w", err), questions.Close())
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) // without the right the default size is used
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)}); err != nil {
		return errors.Join(fmt.Errorf("listen to nftables: %w", err), questions.Close(), unix.Close(fd))
	}
	t.questions, t.socket = questions, os.NewFile(uintptr(fd), "nftables") // both close themselves when nothing refers to them
	t.writes, t.open, t.flags = map[nftTable]uint32{}, map[nftTable]bool{}, map[nftTable]tableFlags{}
	return nil
}

// drain reads the messages that wait.
func (t *transactions) drain() error {
	buffer := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(int(t.socket.Fd()), buffer, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			t.lost++ // the end of a transaction may be among them: the tables that it has written count with the next end
			continue
		case err != nil:
			return fmt.Errorf("read messages of nftables: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return fmt.Errorf("read messages of nftables: %w", err)
		}
		for _, m := range messages {
			t.message(m.Header.Type, m.Data)
		}
	}
}

// message evaluates one message: it names the table that was written, or ends the transaction.
func (t *transactions) message(kind uint16, body []byte) {
	if kind>>8 != unix.NFNL_SUBSYS_NFTABLES || len(body) < nfgenmsg {
		return
	}
	first := nfnl.Find(body[nfgenmsg:], 1) // the table's name in messages about tables, chains, rules and sets
	if kind&0xff != unix.NFT_MSG_NEWGEN {
		t.open[nftTable{body[0], nfnl.String(first)}] = true
		return
	}
	for table := range t.open {
		t.writes[table]++
	}
	clear(t.open)
}

// nfgenmsg is the size of the header of messages of netfilter.
const nfgenmsg = 4

// generation asks for the number of the last transaction.
func (t *transactions) generation() (n uint32, err error) {
	request := nfnl.Request{Subsystem: unix.NFNL_SUBSYS_NFTABLES, Command: unix.NFT_MSG_GETGEN}
	err = t.questions.Get(request, func(m nfnl.Message) { n = nfnl.Uint32(nfnl.Find(m.Attributes, unix.NFTA_GEN_ID)) })
	if err == nil && n == 0 {
		err = errors.New("no answer")
	}
	if err != nil {
		return 0, fmt.Errorf("ask nftables for its generation: %w", err)
	}
	return n, nil
}
