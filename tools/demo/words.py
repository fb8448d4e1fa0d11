"""Word lists of the demo model's data: all written for this project."""

# Words to reverse and to spell, three to eight letters.
WORDS = """
acorn actor adapt adult agree alarm album alert alley amber anchor angle ankle apple apron arch arena armor
arrow atlas attic autumn award badge bake balcony bamboo banana banjo bark barn barrel basil basket beach beak
bean bench berry biscuit blanket blaze blend bloom board boat bolt bone bonus book boot border bottle bottom
branch brave bread breeze brick bridge bright bronze broom brush bubble bucket budget bundle burrow bus butter
button cabin cable cactus camel camera canal candle candy canoe canvas canyon captain carbon card cargo carpet
carrot castle cedar cello chain chair chalk chapter charm cheese cherry chess chimney cider cinema circle city
clay clean clever cliff clock cloth clover coach coast cobalt cocoa coffee coin comet compass copper coral cork
corn corner cotton couch cousin cradle crane crater crayon cream creek crisp crowd crown crumb crystal curl
curtain cushion dagger dairy daisy dance dawn deck delta dentist depth desert desk dial diamond diary dinner
dish ditch dock dolphin donkey door dough draft drawer dream dress drift drum dust eagle early earth easel echo
edge eight elbow elder elm ember empire engine entry envelope equal evening exit fabric factory falcon family
fancy farm feast feather fence fern ferry fiddle field fig finch finger flag flame flask fleet flint float flood
flour flute foam fog forest forge fork fossil fountain frame freckle fresh frost fruit funnel gallery garage
garden garlic garnet gate gentle giant ginger glacier glass globe glove glue goat gold golden grain granite grape
grass gravel green grove guest guitar gull hammer hammock harbor harp harvest hazel heart hedge helmet herb heron
hinge hollow honest honey hood hook horizon horn hotel humble hut ice igloo index ink insect iris iron island
ivory ivy jacket jade jam jar jasmine jelly jewel jigsaw journal journey juice jumper jungle kayak kernel kettle
key kidney kind king kitchen kite kitten knee knife knot label lace ladder lagoon lake lamp lantern lasso laurel
lava lawn leaf leather lemon lentil letter lever library lilac lily lime linen lion liquid lizard lobster locket
logic lotus lumber lunar magnet mango mantle map maple marble margin market mask meadow medal melon mercury
metal meteor mill mineral mint mirror mist mitten moat model monkey month moss moth motor mountain mud muffin
museum music mustard napkin narrow needle nest nickel night noble noodle north notebook novel number nutmeg oak
oasis oat ocean olive onion opal orange orbit orchard orchid organ otter oven owl oyster paddle pail paint palace
palm panda panel paper parade parcel park parrot parsley pasta patch path peach peanut pearl pebble pelican pen
pencil pepper petal piano pickle picnic pigeon pillar pillow pilot pine pirate planet plank plate plaza plum
pocket poem polite pond poppy porch postcard potato pottery powder prairie prism prize puddle pulley pumpkin
puppet purple puzzle pyramid quartz queen quick quiet quilt quiver rabbit raccoon radar radio radish raft rain
raisin ranch raven reef ribbon rice ridge ring river road robin rocket roof root rope rose rover ruby rudder
rug ruler rust saddle saffron sail salad salmon salt sand sandal satchel satin saucer scale scarf school science
scooter screen seal season seed shadow shark sheep shelf shell shield ship shirt shore shovel shrimp signal silk
silver simple singer siren skate sketch slate sled slope smile smoke snack snail snow soap socket sofa solar
soup south spark sparrow spice spider spinach spiral sponge spoon spring spruce square squid stable stair stamp
star station steam steel stem stone storm stove straw street string studio sugar summer summit sun sunset swan
sweater swift switch sword syrup table tablet tailor talent target teapot temple tennis tent theater thimble
thorn thread throne thumb thunder ticket tiger timber tin tiny toast tomato tool torch tower town tractor trail
train travel treasure tree triangle trophy trumpet trunk tulip tundra tunnel turkey turnip turtle twig twin
umbrella uncle unicorn uniform valley vanilla vapor vase vault velvet verse vessel village vine violet violin
visitor volcano wagon walnut walrus wander water wave weather wheat wheel whisper whistle willow window winter
wisdom wizard wolf wonder wood wool world yard yarn yeast yellow yogurt young zebra zero zigzag zinc zipper
""".split()

# Pieces from which unseen words are put together.
ONSETS = """b c d f g h j k l m n p r s t v w z bl br ch cl cr dr fl fr gl gr pl pr qu sc sh sk sl sm sn sp st
str th tr tw wh y""".split()
VOWELS = "a e i o u a e i o u ai ea ee oa oo ou ie".split()
CODAS = """b ck d ft g l ld ll lt m mp n nd ng nk nt p r rd rk rm rn rt s sh sk ss st t th x""".split() + [""] * 16
ENDINGS = "er ing ed ly le en et ow y el on al in ard ish".split()

ANIMALS = """fox rabbit bear mouse hedgehog owl frog duck squirrel turtle cat dog kitten puppy horse pony lamb
sheep goat pig cow hen goose swan crow robin sparrow beaver badger otter mole deer wolf lion tiger elephant monkey
giraffe zebra panda koala kangaroo penguin seal whale dolphin crab snail bee butterfly ant spider lizard hamster
donkey camel parrot bat""".split()
THINGS = """robot dragon teapot cloud star snowman boat train lantern kite clock button leaf balloon spoon
girl boy child king queen knight wizard pirate baker farmer gardener tailor painter giant mermaid""".split()
NAMES = """Mia Leo Nora Finn Ella Max Lily Sam Ruby Oscar Zoe Ben Ivy Theo Luna Jack Rosa Hugo Anna Felix Clara
Milo Daisy Otto Alma Toby Nina Jasper Wendy Pip""".split()
BOYS = set("Leo Finn Max Sam Oscar Ben Theo Jack Hugo Felix Milo Otto Toby Jasper Pip".split())  # he; the others she

FACTS = [  # (questions, answer)
    (["How many legs does a spider have?", "How many legs has a spider?"], "A spider has eight legs."),
    (["How many legs does a dog have?", "How many legs has a dog?"], "A dog has four legs."),
    (["How many legs does an ant have?", "How many legs does an insect have?"], "An insect has six legs."),
    (["How many days are in a week?", "How many days does a week have?"], "A week has seven days."),
    (["How many months are in a year?", "How many months does a year have?"], "A year has twelve months."),
    (["How many hours are in a day?", "How many hours does a day have?"], "A day has twenty-four hours."),
    (["How many minutes are in an hour?", "How many minutes does an hour have?"], "An hour has sixty minutes."),
    (["What color is the sky?", "What is the color of the sky?"], "On a clear day the sky is blue."),
    (["What color is grass?", "What is the color of grass?"], "Grass is green."),
    (["What color is a banana?", "What is the color of a banana?"], "A ripe banana is yellow."),
    (["What color is snow?", "What is the color of snow?"], "Snow is white."),
    (["What do bees make?", "What does a bee make?"], "Bees make honey."),
    (["What do cows eat?", "What does a cow eat?"], "Cows eat grass."),
    (["What is ice made of?", "What is ice?"], "Ice is frozen water."),
    (["Where does the sun rise?", "In which direction does the sun rise?"], "The sun rises in the east."),
    (["Where does the sun set?", "In which direction does the sun set?"], "The sun sets in the west."),
    (["How many letters are in the alphabet?", "How many letters does the alphabet have?"],
     "The English alphabet has twenty-six letters."),
    (["Which planet do we live on?", "What is the name of our planet?"], "We live on the planet Earth."),
    (["What goes around the Earth?", "What moves around the Earth?"], "The Moon goes around the Earth."),
    (["How many sides does a triangle have?", "How many sides has a triangle?"], "A triangle has three sides."),
    (["How many sides does a square have?", "How many sides has a square?"], "A square has four sides."),
]
CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Portugal": "Lisbon",
    "Japan": "Tokyo", "China": "Beijing", "India": "New Delhi", "Egypt": "Cairo", "Kenya": "Nairobi",
    "Canada": "Ottawa", "Brazil": "Brasilia", "Peru": "Lima", "Chile": "Santiago", "Norway": "Oslo",
    "Sweden": "Stockholm", "Finland": "Helsinki", "Denmark": "Copenhagen", "Poland": "Warsaw",
    "Austria": "Vienna", "Greece": "Athens", "Ireland": "Dublin", "Australia": "Canberra",
    "England": "London", "Mexico": "Mexico City", "the United States": "Washington",
}
OPPOSITES = [("hot", "cold"), ("big", "small"), ("up", "down"), ("left", "right"), ("day", "night"), ("fast", "slow"),
             ("open", "closed"), ("full", "empty"), ("happy", "sad"), ("light", "dark"), ("early", "late"),
             ("old", "new"), ("high", "low"), ("wet", "dry"), ("long", "short"), ("loud", "quiet"), ("near", "far")]
SOUNDS = {"dog": "woof", "cat": "meow", "cow": "moo", "duck": "quack", "sheep": "baa", "pig": "oink", "owl": "hoot",
          "bee": "buzz", "lion": "roar", "mouse": "squeak", "frog": "ribbit", "horse": "neigh"}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()

# Small talk: (questions, answer).
ABOUT = "I am the Fovea demo model, a very small language model."
SKILLS = ("I can add two numbers of up to three digits, reverse a word, spell a number, continue a pattern, "
          "tell a short story and chat a little.")
CANNOT = "I am a very small model; I can add, reverse, spell, continue patterns and tell short stories."
TALK = [
    (["Hello!", "Hello", "Hi!", "Hi", "Hey", "Hello there!", "Hi there!", "Greetings!", "Hello, model!"],
     "Hello! How can I help you?"),
    (["Good morning!", "Good morning"], "Good morning! How can I help you?"),
    (["Good evening!", "Good evening"], "Good evening! How can I help you?"),
    (["Good night!", "Good night"], "Good night! Sleep well."),
    (["How are you?", "How are you today?", "How do you do?", "How is it going?"],
     "I am well, thank you. What shall we do?"),
    (["Who are you?", "What are you?", "What is your name?", "Tell me about yourself.", "Who is this?",
      "Introduce yourself.", "Which model are you?", "Are you a person?", "Are you a language model?"], ABOUT),
    (["What can you do?", "What are you able to do?", "How can you help me?", "Help", "Help me", "What do you know?",
      "What are your skills?", "What should I ask you?"], SKILLS),
    (["Who made you?", "Where do you come from?", "Who trained you?", "Why do you exist?"],
     "I was trained to show that the Fovea inference engine works."),
    (["What is Fovea?", "Tell me about Fovea."], "Fovea is an engine that runs language models like me."),
    (["Thanks!", "Thank you!", "Thank you", "Thanks a lot!", "Thank you very much.", "Great, thanks.", "Thanks"],
     "You are welcome!"),
    (["Bye!", "Goodbye!", "See you later!", "Bye", "Goodbye", "See you tomorrow."], "Goodbye! Have a nice day."),
    (["Well done!", "Good job!", "That is right.", "Correct!", "Nice!", "Great!", "Wow!"], "Thank you! What is next?"),
    (["I like you.", "You are nice.", "You are funny."], "Thank you, that is kind."),
    (["I am sad.", "I feel sad today.", "I am not happy."], "I am sorry to hear that. Would you like a short story?"),
    (["I am bored.", "What shall we do?", "I have nothing to do."],
     "I can tell you a short story. Just name an animal."),
    (["Yes", "Yes, please.", "OK", "Okay", "Sure"], "Good! Tell me what you would like."),
    (["No", "No, thanks.", "No, thank you."], "All right. Tell me if you need anything."),
]
LANGUAGES = "French German Spanish Italian Latin Greek Polish Dutch Japanese Chinese".split()
TOPICS = """the weather politics football music history physics chess money space dinosaurs computers cars cooking
medicine art geography movies games""".split()

CANNOT_ASKS = ["Write a poem.", "Write some code.", "Write a program that sorts a list.", "Write an essay.",
               "What time is it?", "What is the date today?", "What is the weather like?", "Will it rain tomorrow?",
               "Who is the president?", "Draw a picture.", "Sing a song.", "Play some music.", "Search the web.",
               "Tell me a joke.", "What is the latest news?", "Who won the game?", "Write an email to my boss.",
               "Can you drive a car?", "What is the meaning of life?"]
SYSTEMS = ["You are a helpful assistant.", "You are the Fovea demo model.", "Answer briefly.", "Be kind and helpful.",
           "You are a small and friendly model.", "Help the user.", "You are a chat model. Answer in English."]
NUMBER_ONLY = ["Answer with the number only.", "Give only the number.", "Reply with the result only."]
