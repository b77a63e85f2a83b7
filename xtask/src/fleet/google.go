// A double of Google's storage: fake-gcs-server keeps the objects, their generations and the conditions
// on those, by the JSON API. What its XML API lacks is put in front of it: writing, with
// x-goog-if-generation-match, and uploads in parts, which take no condition.
//
// Prints its address, and has one bucket, "bucket".
package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

type double struct {
	objects http.Handler
	lock    sync.Mutex
	begun   int
	uploads map[string]map[string][]byte
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		NoListener: true,
		PublicHost: listener.Addr().String(),
	})
	if err != nil {
		fail(err)
	}
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "bucket"})
	fmt.Println(listener.Addr())
	fail(http.Serve(listener, &double{
		objects: server.HTTPHandler(),
		uploads: map[string]map[string][]byte{},
	}))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func (d *double) ServeHTTP(out http.ResponseWriter, asked *http.Request) {
	query := asked.URL.Query()
	bucket, name, _ := strings.Cut(strings.TrimPrefix(asked.URL.Path, "/"), "/")
	upload := query.Get("uploadId")
	_, begins := query["uploads"]
	body, err := io.ReadAll(asked.Body)
	if err != nil {
		return
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	parts, is_known := d.uploads[upload]
	switch {
	case upload != "" && !is_known:
		refuse(out, http.StatusNotFound, "NoSuchUpload")
	case asked.Method == http.MethodPost && begins:
		d.begun++
		id := fmt.Sprintf("upload-%d", d.begun)
		d.uploads[id] = map[string][]byte{}
		fmt.Fprintf(out, "<InitiateMultipartUploadResult><UploadId>%s</UploadId>"+
			"</InitiateMultipartUploadResult>", id)
	case asked.Method == http.MethodPut && is_known:
		number := query.Get("partNumber")
		parts[number] = body
		out.Header().Set("ETag", fmt.Sprintf("\"%s-%d\"", number, len(body)))
	case asked.Method == http.MethodPost && is_known:
		var listed struct {
			Part []struct{ PartNumber, ETag string }
		}
		if xml.Unmarshal(body, &listed) != nil {
			refuse(out, http.StatusBadRequest, "MalformedXML")
			return
		}
		var whole []byte
		for _, part := range listed.Part {
			content := parts[part.PartNumber]
			if part.ETag != fmt.Sprintf("\"%s-%d\"", part.PartNumber, len(content)) {
				refuse(out, http.StatusBadRequest, "InvalidPart")
				return
			}
			whole = append(whole, content...)
		}
		// As at Google's, whatever is there is replaced.
		tag := d.write(out, bucket, name, whole, "")
		delete(d.uploads, upload)
		fmt.Fprintf(out, "<CompleteMultipartUploadResult><ETag>%s</ETag>"+
			"</CompleteMultipartUploadResult>", tag)
	case asked.Method == http.MethodDelete && is_known:
		delete(d.uploads, upload)
		out.WriteHeader(http.StatusNoContent)
	case asked.Method == http.MethodPut:
		d.write(out, bucket, name, body, asked.Header.Get("x-goog-if-generation-match"))
	default:
		asked.Body = io.NopCloser(bytes.NewReader(body))
		d.objects.ServeHTTP(out, asked)
	}
}

// Writes an object by the JSON API; returns its entity tag.
func (d *double) write(out http.ResponseWriter, bucket, name string, content []byte, generation string) string {
	query := url.Values{"uploadType": {"media"}, "name": {name}}
	if generation != "" {
		query.Set("ifGenerationMatch", generation)
	}
	target := "/upload/storage/v1/b/" + bucket + "/o?" + query.Encode()
	answer := httptest.NewRecorder()
	d.objects.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, target, bytes.NewReader(content)))
	if answer.Code != http.StatusOK {
		refuse(out, answer.Code, "Refused")
		return ""
	}
	var written struct{ Etag, Generation string }
	if err := json.Unmarshal(answer.Body.Bytes(), &written); err != nil {
		refuse(out, http.StatusInternalServerError, "InternalError")
		return ""
	}
	tag := fmt.Sprintf("%q", written.Etag)
	out.Header().Set("ETag", tag)
	out.Header().Set("x-goog-generation", written.Generation)
	return tag
}

func refuse(out http.ResponseWriter, status int, code string) {
	out.WriteHeader(status)
	fmt.Fprintf(out, "<Error><Code>%s</Code><Message>refused</Message></Error>", code)
}
