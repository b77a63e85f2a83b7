// Command download fetches one URL over several concurrent connections and discards the content.
//
// usage: download CONNECTIONS URL [CERTIFICATE]
//
// It prints the status and the number of content bytes for each connection.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
)

// Bytes of content read at a time.
const pieceLen = 256 << 10

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "download:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) < 2 || len(arguments) > 3 {
		return fmt.Errorf("usage: download CONNECTIONS URL [CERTIFICATE]")
	}
	connections, err := strconv.Atoi(arguments[0])
	if err != nil || connections < 1 {
		return fmt.Errorf("CONNECTIONS must be a number of at least 1")
	}
	settings := &tls.Config{
		MinVersion:       tls.VersionTLS13,
		CurvePreferences: []tls.CurveID{tls.X25519},
		NextProtos:       []string{"http/1.1"},
	}
	if len(arguments) == 3 {
		certificate, err := os.ReadFile(arguments[2])
		if err != nil {
			return err
		}
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(certificate) {
			return fmt.Errorf("no certificate in %s", arguments[2])
		}
	}
	results := make(chan error, connections)
	for range connections {
		go func() { results <- fetch(arguments[1], settings) }()
	}
	for range connections {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

// fetch downloads url over a connection of its own.
func fetch(url string, settings *tls.Config) error {
	transport := &http.Transport{TLSClientConfig: settings, DisableCompression: true}
	client := http.Client{Transport: transport}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	// Hiding their other methods keeps io.Discard from reading in small pieces.
	content := struct{ io.Reader }{response.Body}
	sink := struct{ io.Writer }{io.Discard}
	count, err := io.CopyBuffer(sink, content, make([]byte, pieceLen))
	if err != nil {
		return err
	}
	fmt.Printf("%d %d\n", response.StatusCode, count)
	return nil
}
