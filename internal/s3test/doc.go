// Package s3test is a server for tests that stores objects as the description of S3's API says, as
// far as package fence uses it: GET, HEAD, PUT and DELETE of an object, ETags, metadata, and the
// conditions If-Match and If-None-Match of a PUT. Begin reading with Server.
package s3test
