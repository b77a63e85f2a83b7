// Downloads paths over HTTP/3 as a case of interoperability asks for it, with quic-go.
//
// usage: client CASE AUTHORITY CACERT FOLDER PATH...
//
// What comes for a path is written to FOLDER, in a file by the number of the path. Exits with 127 if the
// library lacks the case.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

// Shows when a ticket has come.
type tickets struct {
	tls.ClientSessionCache
	put chan struct{}
}

func (cache *tickets) Put(key string, state *tls.ClientSessionState) {
	cache.ClientSessionCache.Put(key, state)
	select {
	case cache.put <- struct{}{}:
	default:
	}
}

type counted struct {
	method, authority, folder string
}

func (it counted) fetch(transport *http3.Transport, number int, path string) error {
	request, err := http.NewRequest(it.method, "https://"+it.authority+path, nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != 200 || response.ProtoMajor != 3 {
		return fmt.Errorf("%s: %s by %s", path, response.Status, response.Proto)
	}
	file, err := os.Create(filepath.Join(it.folder, strconv.Itoa(number)))
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(file, response.Body)
	return err
}

func (it counted) all(transport *http3.Transport, first int, paths []string) error {
	results := make(chan error, len(paths))
	for at, path := range paths {
		go func() { results <- it.fetch(transport, first+at, path) }()
	}
	for range paths {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

func run(name, authority, cacert, folder string, paths []string) error {
	pem, err := os.ReadFile(cacert)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	log := filepath.Join(folder, "qlog")
	os.Setenv("QLOGDIR", log)
	cache := &tickets{tls.NewLRUClientSessionCache(8), make(chan struct{}, 1)}
	var last *quic.Conn
	open := func() *http3.Transport {
		return &http3.Transport{
			TLSClientConfig:    &tls.Config{RootCAs: roots, ClientSessionCache: cache},
			DisableCompression: true,
			QUICConfig: &quic.Config{
				MaxIdleTimeout:       time.Minute,
				HandshakeIdleTimeout: time.Minute,
				Tracer: func(c context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace {
					return qlog.DefaultConnectionTracer(c, isClient, id)
				},
			},
			Dial: func(c context.Context, address string, t *tls.Config, q *quic.Config) (*quic.Conn, error) {
				var err error
				last, err = quic.DialAddrEarly(c, address, t, q)
				return last, err
			},
		}
	}
	it := counted{http.MethodGet, authority, folder}
	transport := open()
	if name == "resumption" || name == "zerortt" {
		if err := it.all(transport, 0, paths[:1]); err != nil {
			return err
		}
		<-cache.put
		transport.Close()
		transport = open()
		if name == "zerortt" {
			it.method = http3.MethodGet0RTT
		}
		if err := it.all(transport, 1, paths[1:]); err != nil {
			return err
		}
		state := last.ConnectionState()
		if !state.TLS.DidResume || name == "zerortt" && !state.Used0RTT {
			return fmt.Errorf("resumed: %t, early data: %t", state.TLS.DidResume, state.Used0RTT)
		}
	} else if err := it.all(transport, 0, paths); err != nil {
		return err
	}
	if suite := last.ConnectionState().TLS.CipherSuite; name == "chacha20" && suite != tls.TLS_CHACHA20_POLY1305_SHA256 {
		return fmt.Errorf("the suite is %x", suite)
	}
	transport.Close()
	<-last.Context().Done()
	return shown(name, log)
}

// What the log of the connection has to show of what came from the server.
func shown(name, log string) error {
	var event, part string
	switch name {
	case "ecn":
		// Its acknowledgements count marked packets.
		event, part = "packet_received", `"ect0":`
	case "keyupdate":
		// It has followed to the next keys.
		event, part = "packet_received", `"key_phase_bit":true`
	default:
		return nil
	}
	// The log is written beside the connection, and a moment longer.
	var err error
	for range 50 {
		if err = logged(log, event, part); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

func logged(log, event, part string) error {
	files, err := filepath.Glob(filepath.Join(log, "*"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no log: %v", err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, event) && strings.Contains(line, part) {
			return nil
		}
	}
	return fmt.Errorf("the log has no %s", part)
}

func main() {
	name := os.Args[1]
	// Its HTTP/3 takes a single version, so that it cannot go back to the first.
	if name == "v2" {
		os.Exit(127)
	}
	if err := run(name, os.Args[2], os.Args[3], os.Args[4], os.Args[5:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
