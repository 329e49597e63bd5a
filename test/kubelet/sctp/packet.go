package main

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
)

// Types of chunks, RFC 9260, section 3.2.
const (
	chunkInit       = 1
	chunkInitAck    = 2
	chunkCookieEcho = 10
	chunkCookieAck  = 11
)

const (
	headerLen   = 12
	chunkLen    = 4
	initLen     = 16 // of an INIT or INIT ACK, without parameters
	cookieLen   = 8
	paramCookie = 7
)

// packet is one of the handshake, with one chunk.
type packet struct {
	from, to uint16 // ports
	tag      uint32 // that the receiver has given
	chunk    byte
	own      uint32 // of an INIT or INIT ACK: the tag that the sender gives
	cookie   []byte // of an INIT ACK or COOKIE ECHO
}

// parse reads a packet without its IP header. Not ok: it is none of the handshake.
func parse(b []byte) (p packet, ok bool) {
	if len(b) < headerLen+chunkLen {
		return packet{}, false
	}
	p = packet{from: binary.BigEndian.Uint16(b), to: binary.BigEndian.Uint16(b[2:]), tag: binary.BigEndian.Uint32(b[4:]), chunk: b[headerLen]}
	value := b[headerLen+chunkLen:]
	switch p.chunk {
	case chunkInit, chunkInitAck:
		if len(value) < initLen {
			return packet{}, false
		}
		p.own = binary.BigEndian.Uint32(value)
		if value = value[initLen:]; p.chunk == chunkInitAck {
			if len(value) < chunkLen+cookieLen || binary.BigEndian.Uint16(value) != paramCookie {
				return packet{}, false
			}
			p.cookie = value[chunkLen : chunkLen+cookieLen]
		}
	case chunkCookieEcho:
		if len(value) < cookieLen {
			return packet{}, false
		}
		p.cookie = value[:cookieLen]
	case chunkCookieAck:
	default:
		return packet{}, false
	}
	return p, true
}

// answer is the server's to a packet, if there is one. Its cookie is the client's tag, in eight bytes.
func (p packet) answer() (packet, bool) {
	a := packet{from: p.to, to: p.from}
	switch p.chunk {
	case chunkInit:
		a.tag, a.chunk, a.own = p.own, chunkInitAck, rand.Uint32()
		a.cookie = binary.BigEndian.AppendUint64(nil, uint64(p.own))
	case chunkCookieEcho:
		a.tag, a.chunk = uint32(binary.BigEndian.Uint64(p.cookie)), chunkCookieAck
	default:
		return packet{}, false
	}
	return a, true
}

func (p packet) bytes() []byte {
	var value []byte
	if p.chunk == chunkInit || p.chunk == chunkInitAck {
		value = binary.BigEndian.AppendUint32(value, p.own)
		value = binary.BigEndian.AppendUint32(value, 65536)   // window
		value = binary.BigEndian.AppendUint32(value, 1<<16|1) // streams
		value = binary.BigEndian.AppendUint32(value, 1)
	}
	if p.chunk == chunkInitAck {
		value = binary.BigEndian.AppendUint32(value, paramCookie<<16|chunkLen+cookieLen)
	}
	value = append(value, p.cookie...)
	b := binary.BigEndian.AppendUint16(nil, p.from)
	b = binary.BigEndian.AppendUint16(b, p.to)
	b = binary.BigEndian.AppendUint32(b, p.tag)
	b = append(b, 0, 0, 0, 0, p.chunk, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(chunkLen+len(value)))
	b = append(b, value...)
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	return b
}
