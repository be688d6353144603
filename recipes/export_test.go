package recipes

// ExampleServer is for the examples, which are in a package of their own.
var ExampleServer = exampleServer
