// Fetches paths over one HTTP/3 connection, all at once.
//
// usage: client AUTHORITY CACERT FOLDER PATH...
//
// What comes for a path is written to FOLDER, in a file by the number of the path.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/quic-go/quic-go/http3"
)

func fetch(client *http.Client, url, path string) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != 200 || response.ProtoMajor != 3 {
		return fmt.Errorf("%s: %s by %s", url, response.Status, response.Proto)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(file, response.Body)
	return err
}

func main() {
	authority, cacert, folder, paths := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	pem, err := os.ReadFile(cacert)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http3.Transport{
		TLSClientConfig:    &tls.Config{RootCAs: roots},
		DisableCompression: true,
	}
	defer transport.Close()
	client := &http.Client{Transport: transport}
	results := make(chan error)
	for number, path := range paths {
		go func() {
			file := filepath.Join(folder, strconv.Itoa(number))
			results <- fetch(client, "https://"+authority+path, file)
		}()
	}
	for range paths {
		if err := <-results; err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
